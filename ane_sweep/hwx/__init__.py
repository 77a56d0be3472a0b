"""The Neural Engine's own programs, as Core ML's compiler leaves them: .hwx files and the net.plist they are made from.

    container   the file: chip family, sections, names, programs, the compiler's words      [bytes that are checked]
    tensors     what goes in and out, with its layout and the padding that costs
    stream      the task descriptors: register by register, as each generation writes them
    meaning     what the registers say: geometry, engine, operation, DMA
    program     all of it together: `read`
    kept        what Core ML leaves behind on a Mac, copied
    files       many of them at once
    beside      several programs side by side, a prediction beside a program
    netplist    the compiler's input

What is known of the format is data (`data/`), a row a fact, each with its source. Nothing here is Apple's documentation:
the files were read by others and by us, and what no table explains is shown as numbers. Standard library only.
"""
