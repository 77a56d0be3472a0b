"""Reading and cutting ML Programs: what chunking, placement and the reference runtime share.

    proto.py      the protobuf classes, without importing coremltools (0.03 s instead of seconds)
    package.py    a .mlpackage on disk: where its protobuf and weights are, reading, writing
    weights.py    weight.bin: mapped reader, streaming writer
    graph.py      a light view of a program: ops in order, what they read, write and hold
    cuts.py       where a program can be cut, and where it is best cut
    chunker.py    n programs in a chain: writing the pieces
    chain.py      a chain seen as one program: what goes in, what comes out

Only numpy is imported here besides the standard library and protobuf.
"""
