"""Attention kernels: tiles of rows in registers, a loop over tiles of the others, scores in no memory."""
