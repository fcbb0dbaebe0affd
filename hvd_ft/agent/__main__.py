"""`python -m hvd_ft.agent`: what mpirun starts, once per rank."""

import sys

from hvd_ft.agent.main import main

sys.exit(main())
