"""Rewriting of nests before text is made of them: what is known is folded, integers get narrow, statistics go over rows twice."""
