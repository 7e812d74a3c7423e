import sys

try:
    from .cli import main

    code = main()
except KeyboardInterrupt:  # while that was imported, before main could say so
    from .core.exit_codes import ExitCode

    print("happened: interrupted", file=sys.stderr)
    code = ExitCode.INTERRUPTED
sys.exit(code)
