"""AdmissionReviews in and answers out: decoding, JSON Patch, node affinity."""
