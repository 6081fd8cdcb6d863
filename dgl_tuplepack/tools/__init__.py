"""For people: the command line, plots, the report and the demo.

In: files and options. Out: text, tables, pictures and pages. It may use all rooms.
"""
