"""The database: records, tables, migrations, queries and the Optuna mirror."""
