"""The contract kit: stand-ins for what a package imports from ``verl_omni``, ``verl`` and ``vllm_omni``.

The folder above this one goes on the path together with a rendered tree::

    PYTHONPATH=scaffold/verify/kit:OUT python -c "import verl_omni.pipelines.<package>"

Put first, it stands in for all three libraries. Appended to ``sys.path`` as the last entry, it only fills the gaps:
whatever is installed for real wins, and the rendered tree is still found through the stand-in ``verl_omni``.

``OMNI_SCAFFOLD_KIT_PROFILE`` names the verl-omni release to imitate (``main`` unless set); what that release and its
vllm-omni lack is missing here too. Each stand-in package says ``__contract__ = "kit"``.
"""
