"""Read the Neural Engine's own programs, as Core ML's compiler leaves them: .hwx files and the net.plist they are made from.

    from pathlib import Path
    from ane_sweep.hwx import comparison, files, program

    compiled = program.read(Path("model.hwx"))
    print(compiled.generation.name, compiled.compiler.version, compiled.bytes)
    for tensor in compiled.tensors:                  # inputs and outputs: role, element, shape, strides, padding
        print(tensor.role, tensor.name, tensor.shape, tensor.bytes, tensor.wasted)
    for task in compiled.tasks:                      # in the order that the engine runs them
        print(task.engine, task.operation, task.shape("in"), task.shape("out"), task.constant_bytes)

    found = files.read([Path("folder")])             # every .hwx and net.plist in it; found.errors are sentences
    print(comparison.compare_programs(found.programs[0], found.programs[-1]))

Main types:

    program.CompiledProgram   a whole file; `undecoded` is the reason why it has no tasks, `agrees` if their count is right
    tasks.TaskDescriptor      one task: engine, operation, geometry, DMA transfers, and every register write
    tensors.TensorBinding     an input or output, with its layout and the padding that costs
    container.Container       the file alone: sections, named addresses, symbols, the compiler's banner
    netplist.NetPlist         the compiler's input: networks of units

Sizes and offsets are bytes (a stream counts words of 4), estimates are the compiler's own in about microseconds.
Everything wrong with a file is errors.PackageError; `files.read` collects its sentences instead.

The known facts of the format are data (`data/`), a row a fact, each with its source. Nothing here is Apple's
documentation: others and this project read the files, and registers that no table explains are shown as numbers.
Standard library only.
"""
