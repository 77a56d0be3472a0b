"""`ane-sweep best -m model=minilm precision=fp16,p6,p4 'psnr_db>=40'`: the cell you want without the full product"""

import json

from ane_sweep import verbs
from ane_sweep.folders import outputs_folder
from ane_sweep.terminal import IN_DOUBT, NOT_ALL_OK, OK
from ane_sweep.words import asks_help
