"""What a run found: records, where they are kept, how one is selected, what they come to."""
