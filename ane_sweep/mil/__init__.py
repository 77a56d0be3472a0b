"""Read, view, cut and write Core ML's ML Programs, without importing coremltools.

    from pathlib import Path
    from ane_sweep.mil import chunker, graph, package

    program = graph.load(Path("model.mlpackage"))
    for op in program.ops:                                  # in the program's order
        print(op.type, op.reads, op.outputs)
    print(program.inputs, program.tensor_type(program.inputs[0]))
    weights = {op.name: program.constant(op) for op in program.ops if op.type == "const"}

    facts = chunker.chunk(Path("model.mlpackage"), Path("out"), chunker.ChunkRequest(count=2))
    print(package.program_paths(Path("out")), facts["chunk_bytes"])

Main types:

    package.Package                 a model on disk: its protobuf message, and its weight files, mapped when first used
    graph.Program, graph.Op         one function as ops in order; an op maps parameters to names of values or literals
    element_types.TensorType        element type by its MIL name ("fp16") and shape; None is a size that is not declared
    weights.BlobFile, BlobWriter    a weight.bin, mapped for reading or streamed for writing
    line.OpLine                     a program as a line of computing ops, with the places where it can be cut
    chunker.ChunkRequest            how a program is cut; the chunks of a chain compute the same bits as the program
    proto.Model_pb2, MIL_pb2        Core ML's protobuf classes (typed in proto.pyi), loaded in 0.03 s

Sizes are bytes, and weights of less than a byte per element are unpacked to one byte per element. Arrays are numpy
views into the mapped file: they cost no memory, and must not be written to. Everything wrong with a file is
errors.PackageError, which says what is wrong, where, and what to do next; a cut that is impossible is
errors.ChunkError, which names the choices.

Imported are numpy and protobuf besides the standard library; coremltools must be installed, for its protobuf classes alone.
"""
