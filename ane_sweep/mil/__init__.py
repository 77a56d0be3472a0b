"""Reading and cutting ML Programs: what chunking, placement and the reference runtime share.

    proto.py      the protobuf classes, without importing coremltools (0.03 s instead of seconds)
    package.py    a .mlpackage on disk: where its protobuf and weights are, reading, writing
    compiled.py   a compiled model: its text, and what else it says of its inputs and parts
    weights.py    weight.bin: mapped reader, streaming writer
    untrusted.py  JSON and safetensors headers from outside, read with care
    effects.py    the modes of arithmetic, and the known effects of the Neural Engine
    cut_words.py  cuts as a user writes them
    graph.py      a light view of a program: ops in order, what they read, write and hold
    line.py       a program as a line of ops, and where that line can be cut
    cuts.py       which of those cuts are best
    ends.py       embedding and vocabulary head as chunks of their own
    joint.py      functions of one package cut at the same places
    chunker.py    n programs in a chain
    writer.py     one chunk as a package
    pipeline.py   a chain as one Core ML pipeline package, and back
    chain.py      a chain seen as one program: what goes in, what comes out

Only numpy is imported here besides the standard library and protobuf.
"""
