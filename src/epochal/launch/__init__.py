"""Runs in processes of their own: started, looked after, and started again."""
