"""The paper's analyses, a file each: it computes numbers from a study, shows them in a report, and registers itself."""
