"""The questions of the labs, one file a lab. The text around them is in labs/source.

A check never compares texts: it measures the answer, by simulating it or by running it, and says of
a wrong one what is wrong with *it*.
"""
