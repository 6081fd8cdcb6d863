"""For people: the command line, pictures, the report, the demo.

In: files and options. Out: text, tables, pictures, pages. It may use all rooms.
"""
