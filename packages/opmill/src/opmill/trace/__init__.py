"""``OPMILL_TRACE=folder`` writes down what is compiled, as it happens; ``opmill report folder`` makes a page of it.

``events`` is what is written, ``writer`` writes it and ``reading`` reads it, ``described`` says of a plan what a picture needs; ``layout``,
``pictures`` and ``page`` make the page."""
