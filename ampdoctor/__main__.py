"""`python -m ampdoctor` is the command `ampdoctor`."""

from ampdoctor.cli import main

if __name__ == "__main__":
    main()
