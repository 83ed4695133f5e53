"""Text, pictures, films and pages made from a run folder."""
