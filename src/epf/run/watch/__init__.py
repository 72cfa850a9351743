"""A live page of a stream: its history in bounded memory, the thread that reads the stream, and a small web server."""
