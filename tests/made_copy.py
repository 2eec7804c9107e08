"A copy of the package for a test to change."

import shutil

from brace_nb.companion import root


def copy_package(folder):
    "With what Python and numba have compiled of it, which is used as long as a module stays as it is."
    unfinished = shutil.ignore_patterns("*.pyc.*", "*.tmp*")  # of processes that compile just now
    shutil.copytree(root() / "brace_nb", folder / "brace_nb", ignore=unfinished)
