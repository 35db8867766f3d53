"""The results of a run: records, where they are kept, which evaluation counts, and summaries. No torch."""
