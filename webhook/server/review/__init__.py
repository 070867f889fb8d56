"""AdmissionReviews answered: the decision of the core, charged and encoded."""
