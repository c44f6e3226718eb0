"""The seam to kernel generators."""
