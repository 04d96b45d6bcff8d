"""Scripts that launchers run. Python looks for modules beside a script first, so nothing else is here that could hide one of Python's."""
