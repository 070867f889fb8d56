"""Why a pod waits: entries of the queue from the pods in line, each judged by the decision of admission."""
