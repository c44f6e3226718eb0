"""The Plan: its data model, text form and codec."""
