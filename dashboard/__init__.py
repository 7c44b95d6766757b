"""The dashboard, installed as the import package `ampdoctor_dashboard`.

Its figures are usable by themselves, in a notebook say: `ampdoctor_dashboard.notebook` draws them of a run folder.

    from ampdoctor_dashboard import notebook

    notebook.timeline("ampdoctor-runs/train")
    notebook.spectrum("ampdoctor-runs/train", "grad_output:decoder.cast")

Each is a `plotly.graph_objects.Figure`. What they are made of is in `ampdoctor_dashboard.figures`: pure functions of
plain numbers and a `Style` (light or dark, English or Chinese).
"""
