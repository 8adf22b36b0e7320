"""What a PyTorch pickle would build, found by a program that imports and calls nothing of the file's choosing.

It runs in a child process (``__main__.py``) and prints JSON. The opcodes are walked with ``pickletools.genops``; what
they build is plain containers and scalars, tensors (each a claim on a storage, never numbers), and inert things that
only remember the name of the class or function they stand for.

The rule for names. Nothing is ever looked up, so any name is harmless here; what is decided is what to tell the user:

- torch's rebuild functions and the usual containers are understood (``names.py``);
- a dangerous name (``os.system``, ``builtins.eval``) or a call that claims memory (``torch.FloatTensor(3000000000)``)
  marks an attack: the whole file is refused, with the name;
- every other name becomes an inert thing and is listed as ignored.

Only the standard library and relative imports: the child then starts in some 30 ms, without ``fbt_core`` and torch.
Read in the order names, things, machine, opcodes, walk, __main__.
"""
