"""The services of one node that API handlers use, built from controller, replicas and coordinators."""
