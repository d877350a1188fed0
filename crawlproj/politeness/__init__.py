"""The rules of politeness. Pure: time is an argument, nothing is fetched here."""
