"""The dashboard: a page that is an MQTT client of the broker it shows, with history from the lake.

`locus dashboard` starts it. What is shown is reduced from messages by plain classes (`scene`, `traffic`, `matches`),
which know neither sockets nor pages; `feed` brings them messages, `views` puts them on a page.
"""
