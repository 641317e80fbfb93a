"""``.epochal/project.db``: what a project keeps and no run folder has, such as result tables."""
