"""``.epochal/project.db``: project data outside run folders, such as result tables."""
