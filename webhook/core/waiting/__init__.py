"""Why a pod waits: entries of the queue, each judged by the decision of admission."""
