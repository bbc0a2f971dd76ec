"""Texts on which a machine compares variants: short and long, plain and technical, in several languages.

Written for this project. Accuracy is measured on them when a model is built and when a machine chooses a variant.
"""

SENTENCES = (
    "Yes.",
    "Not today.",
    "Invoice 2291 overdue",
    "red shoes size 42",
    "How do I reset my password?",
    "The ferry leaves at six.",
    "Where is the nearest pharmacy?",
    "Error: disk quota exceeded on /var/log",
    "Cheap flights to Lisbon in October",
    "My order arrived with the wrong colour and a torn box.",
    "The cat slept on the warm printer all afternoon.",
    "A violin has four strings, a guitar usually six.",
    "Please cancel my subscription before the next billing date.",
    "Rain is expected in the north, with sunshine by the evening.",
    "She paid in cash because the card reader was broken.",
    "Das Paket wurde gestern beim Nachbarn abgegeben.",
    "La réunion est reportée à jeudi matin, dans la petite salle.",
    "El restaurante cierra los lunes y abre a las ocho de la tarde.",
    "The compiler warns about an unused variable in line 12.",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
    "def area(radius): return 3.14159 * radius ** 2",
    "SELECT name, total FROM orders WHERE total > 100 ORDER BY total DESC",
    "The bridge was closed for repairs after inspectors found cracks in two of its cables.",
    "Mix the flour with the butter, add a pinch of salt, and let the dough rest for half an hour.",
    "Our support team answers within one working day; urgent matters should be reported by telephone.",
    "The defendant argued that the contract had never been signed and was therefore void.",
    "Glaciers move slowly, yet over centuries they carve valleys deeper than any river could.",
    "Two nurses and a doctor attended the patient, whose fever had risen again during the night.",
    "If the light blinks twice, hold the button for five seconds and wait until the tone stops.",
    "Shares of the company fell by nine percent after it lowered its forecast for the third quarter.",
    "The museum shows drawings that the painter made as a student, long before anyone knew his name.",
    "A hash table trades memory for speed: looking up a key takes the same time however many there are.",
    "Because the road was icy, the bus took twice as long as usual and we missed the first act of the play.",
    "The committee proposes to plant four hundred trees along the canal, most of them lindens and alders.",
    "When the queue is full, new requests are refused with an error that says when to try again.",
    "He collects postage stamps from countries that no longer exist, and writes a page about each of them.",
    "The vaccine must be kept between two and eight degrees and used within six hours of opening.",
    "Battery life is excellent, the screen is sharp, but the speakers sound thin and the case scratches easily.",
    "Migrating birds find their way by the sun, by the stars and, it seems, by the magnetic field of the earth.",
    "To tie the knot, cross the left end over the right, pass it under the loop and pull both ends tight.",
    "The goalkeeper saved two penalties, and the small club from the valley reached the final for the first time.",
    "Quarterly maintenance: drain the tank, replace the filter, check the seals, and note the pressure in the log.",
    "Inflation slowed to three percent in May, which economists attribute to cheaper energy and weaker demand.",
    "Write the configuration to a temporary file first and rename it, so that readers never see half of it.",
    "The novel follows three sisters who inherit a lighthouse and cannot agree on whether its lamp should burn.",
    "Unlike lead, which is soft and heavy, titanium is light, hard and very slow to corrode even in sea water.",
)
"""Single sentences of 3 to about 30 tokens."""

_JOINED = ((10, 2), (14, 3), (19, 2), (22, 4), (24, 3), (27, 5), (30, 4), (31, 6), (33, 8), (36, 7), (24, 12), (8, 16))

PARAGRAPHS = tuple(" ".join(SENTENCES[start : start + count]) for start, count in _JOINED)
"""Neighbouring sentences joined: 30 to about 300 tokens, so that limits are reached and cut."""

SAMPLE_TEXTS = (*SENTENCES, *PARAGRAPHS)
