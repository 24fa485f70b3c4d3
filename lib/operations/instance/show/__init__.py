"""Views of instances: details, hook variables, problems of guests."""
