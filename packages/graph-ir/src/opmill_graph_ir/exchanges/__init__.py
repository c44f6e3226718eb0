"""Exchanges with other processes in a schedule: when they start, when they are waited for, and how long that is thought to take."""
