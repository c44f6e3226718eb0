"""What a capture takes for granted of the world before the call: guards, identities, questions asked anew at each call."""
