"""The state of the cluster at a moment: facts in, findings with their severity out.

`facts` has the records, `rules` the verdict, `document` the answer for clients. Whoever
collects the facts asks nodes and reads clocks; nothing here does.
"""
