"""Responses to AdmissionReviews: the decision of the core, charged and encoded."""
