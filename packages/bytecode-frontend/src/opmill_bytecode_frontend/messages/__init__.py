"""What refusals say: lines of the user's source, and remedies."""
