"""What the text corpora share: reading JSON lines, cutting documents into a task's splits, comparing counts."""
