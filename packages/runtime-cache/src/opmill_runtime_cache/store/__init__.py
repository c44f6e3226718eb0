"""The artifact store on disk."""
