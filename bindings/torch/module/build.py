"""python -m tutti.torch.build: compiles the backend for the installed torch before its first use.
"""

from . import _build  # importing the package has compiled and loaded it


def main():
    print(f"tutti: the backend for torch {_build.torch.__version__} is {_build.build()}")


if __name__ == "__main__":
    main()
