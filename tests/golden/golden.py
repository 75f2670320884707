"""Writing golden files, and holding those that are checked in against what is made now."""

import sys


def run(doc, folder, make):
    """`generate` or `check`, as the command line says; `make` returns all files by name."""
    if sys.argv[1:] == ["generate"]:
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for name, content in make().items():
            (folder / name).write_bytes(content)
    elif sys.argv[1:] == ["check"]:
        made = make()
        kept = {p.name: p.read_bytes() for p in folder.iterdir()}
        wrong = sorted(n for n in made.keys() | kept.keys() if made.get(n) != kept.get(n))
        if wrong:
            sys.exit(f"not as made: {', '.join(wrong)}; run {sys.argv[0]} generate")
        print(f"{len(made)} golden files are as made")
    else:
        sys.exit(doc)
