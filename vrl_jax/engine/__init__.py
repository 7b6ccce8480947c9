"""Rounds as compiled programs: the engine, the placement of workers on devices, periods, feeding and evaluation."""
