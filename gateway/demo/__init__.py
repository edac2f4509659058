"""The agent that ``toolcast demo`` starts: what it asks for is a script, what its tools do is real.

It uses ``listeners`` as any agent would, and nothing of the gateway.
"""

from __future__ import annotations
