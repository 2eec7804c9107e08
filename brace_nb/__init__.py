__version__ = "1.0.0"

from .core.extras import tell_extras

tell_extras()
