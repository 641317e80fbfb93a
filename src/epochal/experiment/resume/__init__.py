"""Whether and where a run resumes."""
