"""The services of one node, assembled from controller, replicas and coordinators, for the API handlers."""
