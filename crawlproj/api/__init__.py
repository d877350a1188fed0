"""The jobs API and the web page: starts runs and shows them. All state is in Redis and on disk."""
